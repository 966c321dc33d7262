"""What a question returns: rows, in whatever form the asker likes.

run.where("code", 93412).dicts()    .arrow    .pandas()    .polars()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import missing_extra
from lading.runtime.arrow import column
from lading.runtime.fields import html_table

_SHOWN = 30


def schema_of(columns: str) -> pa.Schema:
    """Return the schema of columns that are declared as in SQL.

    >>> schema_of("step int64, fate string").names
    ['step', 'fate']
    """
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in map(str.split, columns.split(","))])


class Table:
    """Rows with named columns.

    Attributes:
        arrow: The rows as an Arrow table.
    """

    def __init__(self, arrow: pa.Table) -> None:
        self.arrow = arrow

    @classmethod
    def of(cls, rows: list[dict[str, Any]], schema: pa.Schema) -> Table:
        """Make a table from dicts; the schema holds where there are no rows."""
        return cls(pa.Table.from_pylist(rows, schema=schema))

    @classmethod
    def of_columns(
        cls, values: Mapping[str, Any], schema: pa.Schema, known: Mapping[str, NDArray[np.bool_]] | None = None
    ) -> Table:
        """Make a table from arrays by name, null where ``known`` says that a value is not."""
        columns = [
            pa.array(values[f.name].tolist(), f.type)
            if pa.types.is_string(f.type)
            else column(values[f.name], f.type, (known or {}).get(f.name))
            for f in schema
        ]
        return cls(pa.table(columns, schema=schema))

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.arrow.column_names)

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self.arrow.to_pylist(maps_as_pydicts="lossy"))

    def pandas(self) -> Any:
        """Return the rows as a pandas ``DataFrame``."""
        try:
            return self.arrow.to_pandas()
        except ImportError as error:
            raise missing_extra("pandas", "all", "a DataFrame") from error

    def polars(self) -> Any:
        """Return the rows as a Polars ``DataFrame``."""
        try:
            import polars  # here, because only those who ask for Polars need it
        except ImportError as error:
            raise missing_extra("polars", "all", "a Polars DataFrame") from error
        return polars.from_arrow(self.arrow)

    def __len__(self) -> int:
        return len(self.arrow)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.dicts())

    def __getitem__(self, column: str) -> list[Any]:
        """Return a column as a list."""
        return list(self.arrow[column].to_pylist())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Let any library that speaks Arrow take the rows without a copy."""
        return self.arrow.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the first rows, for notebooks."""
        rows = [row.values() for row in self.arrow.slice(0, _SHOWN).to_pylist(maps_as_pydicts="lossy")]
        return html_table(self.columns, [list(row) for row in rows], more=len(self) - _SHOWN)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"
