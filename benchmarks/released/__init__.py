"""What released code drafts, restated: the other side of `benchmarks.acceptance`.

One module per method. Each restates, from reading the published code and without its text, which
tokens it proposes; the one decode loop verifies them. None of them is offered by the product.

What is the same for all. A release that runs its first draft together with the prompt is given
what that forward showed by a forward of its own (`prompt_pass`); the loop's first token comes from
the prefill all the same. A guess whose last token a release checks but never keeps, so that its
bonus token is lost, is proposed without it: the committed tokens are the same. Placeholders for
"unknown" are drafted as released, once per parent.
"""
