"""Lines of CSV files: the names in the first one, and what to say of those that are no rows."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from langevin.data.text import pyarrow_module


def names_of(file: Path) -> list[str]:
    """The columns that the first line names."""
    arrow, csv = pyarrow_module("pyarrow"), pyarrow_module("pyarrow.csv")
    with open(file, "rb") as opened:
        line = opened.readline()
    text = line.decode(errors="replace").strip()
    separator = next((one for one in ";\t" if one in text), None)
    if separator is not None and "," not in text:
        raise ValueError(
            f"data: {file} must have commas between its columns, got the header {text!r}. Write it anew, such as by "
            f"pandas.read_csv({file.name!r}, sep={separator!r}).to_csv('commas.csv', index=False)."
        )
    if text.count('"') % 2:
        raise ValueError(f"data: the header of {file} must be one line, got {text!r} in the first. Rename that column.")
    try:
        return csv.read_csv(arrow.py_buffer(line)).schema.names
    except arrow.lib.ArrowInvalid as error:
        raise ValueError(f"data: {file} is not a CSV file with a header: {error}.") from error


def below_header(piece: bytes) -> bytes:
    """What follows the first line."""
    return piece[piece.find(b"\n") + 1 :] if b"\n" in piece else b""


def refusal(error: Exception, piece: Any, read: dict[str, Any], file: Path, first: int) -> ValueError:
    """Why lines could not be read, of which the first one is the row `first` of the file."""
    wrong, said = _first_wrong(piece, read), str(error).splitlines()[0]
    # Half of an entry between quotes has one of them.
    if "newlines_in_values" in said or (wrong.text if wrong else said).count('"') % 2:
        return ValueError(
            f"data: {file} must have a line for each row, got a quoted entry that goes on in the next line. Write it "
            f"as Parquet, such as by pandas.read_csv({file.name!r}).to_parquet('table.parquet')."
        )
    if wrong is not None:
        return ValueError(
            f"data: {file} must have {wrong.expected_columns} entries in every row, as its header has, got "
            f"{wrong.actual_columns} in row {first + wrong.number - 1:,} (counted from 0): {wrong.text!r}. Mend it."
        )
    return ValueError(f"data: {file} cannot be read as CSV: {said}.")


def _first_wrong(piece: Any, read: dict[str, Any]) -> Any:
    """The first row that has more or fewer entries than the header; one thread alone knows its number."""
    csv, found = pyarrow_module("pyarrow.csv"), []

    def keep(row: Any) -> str:
        found.append(row)
        return "error"

    with suppress(pyarrow_module("pyarrow").lib.ArrowInvalid):
        parse = csv.ParseOptions(invalid_row_handler=keep)
        csv.read_csv(piece, csv.ReadOptions(**read, use_threads=False), parse)
    return found[0] if found else None
