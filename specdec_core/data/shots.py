"""Worked examples that base models see before the question; written for this package.

None of them occurs in an evaluation set. Each example ends where the answer of a question would
end, followed by the separator of the next one.
"""

from __future__ import annotations

_TRANSLATION = (
    (
        "Der Zug nach Leipzig fährt heute von Gleis sieben ab.",
        "The train to Leipzig leaves from platform seven today.",
    ),
    (
        "Wegen des starken Regens wurde das Konzert in die Sporthalle verlegt.",
        "Because of the heavy rain, the concert was moved to the sports hall.",
    ),
    (
        "„Wir haben lange auf diese Entscheidung gewartet“, sagte die Bürgermeisterin.",
        '"We have waited a long time for this decision," said the mayor.',
    ),
    (
        "Die Firma will im nächsten Jahr zweihundert neue Stellen schaffen.",
        "The company wants to create two hundred new jobs next year.",
    ),
)

_SUMMARIZATION = (
    (
        "The swimming pool in Norden reopens on Monday after eight months of repairs. Workers "
        "replaced the leaking roof and put in a new heating system that uses a third less "
        "energy. The work cost 1.4 million euros, about 100,000 more than planned, because rust "
        "was found in the beams. Entry stays at four euros for adults, and children swim free of "
        "charge in the first week. The town expects 90,000 visitors a year.",
        "The pool in Norden reopens on Monday with a new roof and more efficient heating. The "
        "repairs took eight months and cost 1.4 million euros, slightly more than planned.",
    ),
)

_QA = (
    ("What is the largest planet of the solar system?", "Jupiter"),
    ("Who composed the opera The Magic Flute?", "Wolfgang Amadeus Mozart"),
    ("In which year did the Berlin Wall fall?", "1989"),
    ("What metal is liquid at room temperature?", "mercury"),
)

_RAG = (
    (
        "The lighthouse of Sandholm was built of red brick. Its lamp burned rape oil at first and "
        "was converted to gas forty years later. The last keeper, Ines Brandt, moved out when the "
        "light was automated.\n"
        "The island of Sandholm can be reached by a small ferry that runs from April to October. "
        "It has two farms, a guest house and a bird observatory.",
        "Who was the last keeper of the lighthouse of Sandholm?",
        "Ines Brandt",
    ),
)

_MATH = (
    (
        "A baker fills 6 trays with 15 rolls each. She sells 52 rolls before noon and 23 in the "
        "afternoon. How many rolls are left?",
        "The baker has 6 * 15 = 90 rolls. She sells 52 + 23 = 75 of them, so 90 - 75 = 15 rolls "
        "are left. The answer is 15.",
    ),
    (
        "Tomas saves 12 dollars a week. After 5 weeks he buys a lamp for 27 dollars. How much "
        "money does he have now?",
        "Tomas saves 12 * 5 = 60 dollars in 5 weeks. After buying the lamp he has 60 - 27 = 33 "
        "dollars. The answer is 33.",
    ),
)

_MMLU = (
    (
        "Which gas makes up most of the air we breathe?\nA. Oxygen\nB. Nitrogen\n"
        "C. Carbon dioxide\nD. Argon",
        "B",
    ),
    (
        "A right triangle has legs of length 3 and 4. How long is its hypotenuse?\nA. 6\nB. 7\n"
        "C. 12\nD. 5",
        "D",
    ),
    (
        "Which of these is a primary source for a historian?\nA. A diary of the time\n"
        "B. A school textbook\nC. An encyclopedia entry\nD. A modern novel",
        "A",
    ),
)


# How one item is written for a base model; the answer follows after one space.
BASE_FORMATS = {
    "translation": "German: {text}\nEnglish:",
    "summarization": "Article: {text}\nSummary:",
    "qa": "Question: {text}\nAnswer:",
    "rag": "{context}\nQuestion: {text}\nAnswer:",
    "mmlu": "{text}\nAnswer:",
    "math": "Question: {text}\nAnswer:",
    "code": "{text}",
    "chat": "User: {text}\nAssistant:",
}


def _header(domain: str, examples: tuple[tuple[str, ...], ...]) -> str:
    """Worked examples of a domain, written like its items; the fields end with the answer."""
    parts = []
    for *context, text, answer in examples:
        question = BASE_FORMATS[domain].format(text=text, context="".join(context))
        parts.append(f"{question} {answer}\n\n")
    return "".join(parts)


BASE_HEADERS = {
    "translation": _header("translation", _TRANSLATION),
    "summarization": _header("summarization", _SUMMARIZATION),
    "qa": _header("qa", _QA),
    "rag": _header("rag", _RAG),
    "mmlu": _header("mmlu", _MMLU),
    "math": _header("math", _MATH),
    "code": "",
    "chat": "",
}
