"""A sink that writes tuples as Parquet, for Spark and other readers of columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.contracts import TaskContext
from penstock.api.sinks.parts import PartFile, PartFiles
from penstock.model.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

SEEN = 4096  # tuples from which a schema is derived, if none is passed
SMALL = 256  # batches of columns that are merged into one
ROW_GROUP = 65_536  # rows


class Parquet(PartFiles):
    """Writes tuples to Parquet files in a folder, which `spark.readStream` can follow: `Parquet("output/counts")`.

    folder: a relative one is inside the run's folder.
    schema: a msgspec Struct type or an Arrow schema. None: derived from the first tuples, from the annotations of
        Structs, else from their values; pass one if the tasks may see different values first.
    roll_rows: number of rows after which a new file is started; checked about once per second.

    Structs, named tuples, dataclasses and dicts have one column per field, plain tuples the columns `_1`, `_2`, …,
    other values one column `value`. A tuple that does not match the schema is rejected with its field and value;
    missing fields of a dict are null.

    Files become visible when a checkpoint is complete, and at the end, so each tuple is in them exactly once, whatever
    fails. They are named `part-<component>-<task>-<number>-<run>.parquet`, where the last part is a hash of the run's
    name in six digits, so that runs may share a folder. The name of an incomplete file starts with `_`.
    """

    ending = ".parquet"

    def __init__(
        self, folder: str | Path, schema: "type[msgspec.Struct] | pa.Schema | None" = None, roll_rows: int = 1_000_000
    ) -> None:
        super().__init__(folder, roll_rows)
        if schema is not None and not _is_struct(schema):
            import pyarrow as pa

            if not isinstance(schema, pa.Schema):
                problem = f"expected a msgspec Struct type, a pyarrow schema or None, got {schema!r}"
                raise InvalidInput("schema", problem)
        self.schema = schema

    def open(self, context: TaskContext) -> None:
        """Create the folder, and import the Parquet writer, which takes a second that must not delay a tuple."""
        import pyarrow as pa
        import pyarrow.parquet

        pa.array([0])  # the first one imports pandas, if it is installed
        super().open(context)
        self._schema: pa.Schema | None = None if _is_struct(self.schema) else self.schema
        self._values: list[Any] = []  # not yet columns: the schema is unknown
        self._batches: list[pa.RecordBatch] = []  # not yet written
        self._kept = 0  # rows in them

    def begin(self, file: PartFile) -> None:
        """Start a new file; its writer is created when its schema is known."""
        self._file = file
        self._writer: Any = None

    def add(self, values: Sequence[Any]) -> None:
        """Convert tuples to columns, once the schema is known, and buffer these until they fill a row group."""
        if self._schema is None and len(self._values) + len(values) < SEEN:
            self._values.extend(values)
            return
        self._columns([*self._values, *values])
        if self._kept >= ROW_GROUP:
            self._write()

    def finish(self) -> None:
        """Write the remaining rows."""
        if self._values:
            self._columns(self._values)
        self._write()
        self._writer.close()

    def snapshot(self) -> Any:
        """Return the number of the next part, and the schema once it is known."""
        schema = None if self._schema is None else self._schema.serialize().to_pybytes()
        return {"number": super().snapshot(), "schema": schema}

    def restore(self, state: Any) -> None:
        """Continue with a number and a schema."""
        super().restore(state["number"])
        if state["schema"] is not None:
            import pyarrow as pa

            self._schema = pa.ipc.read_schema(pa.py_buffer(state["schema"]))

    def rescale(self, states: Sequence[Any], tasks: int) -> Sequence[Any]:
        """Return the greatest number, and the schema, for every task."""
        schema = next((state["schema"] for state in states if state["schema"] is not None), None)
        return [{"number": max(state["number"] for state in states), "schema": schema}] * tasks

    def _columns(self, values: Sequence[Any]) -> None:
        """Convert tuples to columns of the schema, or of the one that they imply."""
        import pyarrow as pa

        from penstock.api.sinks.columns import batch_of, schema_for

        schema = self._schema or schema_for(values, self._context.name, self.schema)
        self._batches.append(batch_of(values, schema, self._context.name))
        self._schema, self._values = schema, []
        self._kept += len(values)
        if len(self._batches) == SMALL:
            self._batches = pa.Table.from_batches(self._batches).combine_chunks().to_batches()

    def _write(self) -> None:
        """Write the buffered columns as a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, self._schema)
        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches), row_group_size=ROW_GROUP)
        self._batches, self._kept = [], 0


def _is_struct(schema: object) -> bool:
    return isinstance(schema, type) and issubclass(schema, msgspec.Struct)
