"""The declaration of a Delta table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

# ((name, type of Spark SQL), …)
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Layer:
    """What the rows of a table are, by its files and the layer over them.

    `view` selects all rows, `of_keys` those of some keys, in SQL that both engines read. In them
    {stored} is the table as its files have it, {layer} the table `source` (the same one if that is
    None), of which rows with a `snapshot` above {folded} are the layer; {keys} has the column of
    keys, each once. {small} marks for Spark that the relation k is small.
    """

    view: str
    of_keys: str
    source: "Table | None" = None


@dataclass(frozen=True)
class Table:
    """One Delta table: its folder's name, and its columns as Spark SQL DDL.

    Each of its files has rows of one value of `grouped_by`, so that reading one value skips the
    other files. Columns of `not_in_dictionaries` are written without Parquet's dictionaries, since
    their values seldom repeat. A table that was created before a column of `added` lacks it: it
    reads as null, until the next compaction adds it. Where a snapshot says that its files are
    folded up to an earlier one, its rows are what `layer` says. Columns of `contacts` may have
    names and addresses: the log of the table has no bounds of them, and what they have of a client
    goes when it is erased. It lies in the folder of its name, or in `folder` if a snapshot says so.
    The row groups that this process writes are sorted by `sorted_by`, so that who looks for some of
    its values skips pages; nobody relies on that order.
    """

    name: str
    columns: str
    grouped_by: str | None = None
    not_in_dictionaries: tuple[str, ...] = ()
    added: Columns = ()
    layer: Layer | None = None
    contacts: tuple[str, ...] = ()
    folder: str | None = None
    sorted_by: str | None = None

    @property
    def path(self) -> str:
        """Its folder within that of all tables."""
        return self.folder or self.name

    def located(self, folders: Mapping[str, str]) -> "Table":
        """Return the table, and the source of its layer, in the folders of {name: folder}."""
        folder, layer = folders.get(self.name), self.layer
        if layer and layer.source:
            layer = replace(layer, source=layer.source.located(folders))
        return replace(self, folder=folder, layer=layer)

    @property
    def layer_source(self) -> "Table":
        """The table whose rows are its layer, if it has one: its own where that names no other."""
        return (self.layer and self.layer.source) or self
