"""A sink that writes tuples as Parquet, for Spark and everything else that reads columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.contracts import TaskContext
from penstock.api.sinks.parts import PartFiles
from penstock.model.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

TOGETHER = 4096  # tuples that are turned into columns at once
ROW_GROUP = 65_536  # rows


class Parquet(PartFiles):
    """Writes tuples to Parquet files of a folder, which `spark.readStream` can follow: `Parquet("output/counts")`.

    folder: a relative one is below the run's folder.
    schema: a msgspec Struct type or an Arrow schema. None: that of the first tuples, from the annotations where they
        are Structs, and else from their values; tasks that might see different values first need one given.
    roll_seconds: how old a file grows before it is finished and shows; looked at about once a second.
    roll_rows: how many rows it may have by then before it is finished earlier.

    Structs, named tuples, dataclasses and dicts give a column a field, plain tuples the columns `_1`, `_2`, …, anything
    else one column `value`. A tuple that does not fit the schema is refused, with its field and value; a dict may lack
    fields, which are null. Files are named `part-<component>-<task>-<number>.parquet`. A file that is still being
    written begins with `_`. A folder that holds files already keeps them.
    """

    ending = ".parquet"

    def __init__(
        self,
        folder: str | Path,
        schema: "type[msgspec.Struct] | pa.Schema | None" = None,
        roll_seconds: float = 5.0,
        roll_rows: int = 1_000_000,
    ) -> None:
        super().__init__(folder, roll_seconds, roll_rows)
        if schema is not None and not _is_struct(schema):
            import pyarrow as pa

            if not isinstance(schema, pa.Schema):
                problem = f"expected a msgspec Struct type, a pyarrow schema or None, got {schema!r}"
                raise InvalidInput("schema", problem)
        self.schema = schema

    def open(self, context: TaskContext) -> None:
        """Make the folder and find the next number."""
        super().open(context)
        self._schema: pa.Schema | None = None if _is_struct(self.schema) else self.schema
        self._values: list[Any] = []  # not yet columns
        self._batches: list[Any] = []  # not yet written

    def begin(self, path: Path) -> None:
        """Remember where the file will be; it is made when its schema is known."""
        self._path = path
        self._writer: Any = None

    def add(self, values: Sequence[Any]) -> None:
        """Keep tuples until there are enough for columns, and columns until there are enough for a row group."""
        self._values.extend(values)
        if len(self._values) >= TOGETHER:
            self._columns()
        if sum(batch.num_rows for batch in self._batches) >= ROW_GROUP:
            self._write()

    def finish(self) -> None:
        """Write the rest and close the file."""
        self._columns()
        if self._schema is not None:
            self._write()
            self._writer.close()

    def snapshot(self) -> Any:
        """Return the number of the next part, and the schema once it is known."""
        self._columns()
        schema = None if self._schema is None else self._schema.serialize().to_pybytes()
        return {"number": super().snapshot(), "schema": schema}

    def restore(self, state: Any) -> None:
        """Go on with a number and a schema."""
        super().restore(state["number"])
        if state["schema"] is not None:
            import pyarrow as pa

            self._schema = pa.ipc.read_schema(pa.py_buffer(state["schema"]))

    def _columns(self) -> None:
        """Turn the tuples that are kept into columns."""
        if not self._values:
            return
        from penstock.api.sinks.columns import batch_of, schema_for

        values, self._values = self._values, []
        if self._schema is None:
            self._schema = schema_for(values, self._context.name, self.schema)
        self._batches.append(batch_of(values, self._schema, self._context.name))

    def _write(self) -> None:
        """Write the columns that are kept as a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, self._schema)
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=ROW_GROUP)
        self._batches = []


def _is_struct(schema: object) -> bool:
    return isinstance(schema, type) and issubclass(schema, msgspec.Struct)
