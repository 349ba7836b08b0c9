"""Parts of Progressive Tree Drafting: the draft forest, its seeds, its choices and its pool."""
