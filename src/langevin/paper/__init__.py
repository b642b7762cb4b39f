"""The paper's figures and theorems, one module each: it computes, draws, and checks its claim.

A module `NAME.py` that is listed in `catalogue.py` has a docstring whose first line is its title, and four functions:

    compute(lab) -> Numbers            all that needs sampling, in parts that are saved as they are done
    check(numbers) -> list[Finding]    a verdict on each claim, from the numbers alone
    table(numbers) -> list[Row]        the numbers as rows of a table, for the CSV file
    draw(numbers) -> dict[str, Figure] the pictures, by file name

Nothing else in the package imports this room.
"""
