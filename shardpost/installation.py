"""One installation of Shardpost: its Kafka, its tables, its files and locks, opened once.

A command, a job, a task of an executor, a turn of a follower or a request of the page opens one, by
the settings of its process; what it calls takes the part that it uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from shardpost.settings import Declared, Settings, load
from shardpost.values.topic_names import TopicName

if TYPE_CHECKING:
    from shardpost.delta.storage import Tables
    from shardpost.kafka.kafka import Kafka
    from shardpost.locks.shared_files import Files

T = TypeVar("T")
__all__ = ["Declared", "Installation", "opened"]


@dataclass(frozen=True)
class Installation:
    """What a run reaches outside its process, and the settings that it goes by.

    DAGs import this module: the clients are imported when they are first asked for.
    """

    settings: Settings

    def topic(self, name: TopicName) -> str:
        """Return a topic's name in this installation, for who needs no client of its Kafka."""
        return self.settings.topic(name)

    def values(self, kind: Callable[..., T]) -> T:
        """Return the values that a feature declares: its fields are settings, by their names."""
        return kind(**{name: getattr(self.settings, name) for name in signature(kind).parameters})

    @cached_property
    def kafka(self) -> "Kafka":
        """Its Kafka."""
        from shardpost.kafka.kafka import Kafka

        settings = self.settings
        return Kafka(
            settings.bootstrap,
            settings.bootstrap_servers,
            settings.kafka,
            settings.kafka_timeout,
            settings.topics,
        )

    @cached_property
    def tables(self) -> "Tables":
        """Its tables."""
        from shardpost.delta.storage import Tables

        settings = self.settings
        where = settings.tables_root, settings.is_on_store, settings.store
        return Tables(*where, settings.snapshot_days, settings.home)

    @cached_property
    def files(self) -> "Files":
        """Its home, and its locks."""
        from shardpost.locks.shared_files import Files

        return Files(self.settings.home, self.tables, self.settings.lock_wait)

    def having(self, **changed: Any) -> "Installation":
        """Return the installation with other values of settings, and what these do not change."""
        return Installation(self.settings.model_copy(update=changed)).sharing(self)

    def sharing(self, other: "Installation") -> "Installation":
        """Take over the parts of another one that are as its own, with what they keep open."""
        for part in ("kafka", "tables", "files"):
            if getattr(self, part) == (theirs := getattr(other, part)):
                self.__dict__[part] = theirs
        return self


def opened() -> Installation:
    """Open the installation of this process."""
    return Installation(load())
