"""Classes of messages of Protobuf, made from schemas as the code that protoc generates has them."""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from shardpost.kafka.protobuf_messages import compiled
from shardpost.kafka.schema_registry import Schema

PROTO3, PROTO2 = 'syntax = "proto3"; ', 'syntax = "proto2"; '


def files_of(text: str, *referenced: tuple[str, str]) -> bytes:
    """Return a compiled schema."""
    return compiled(Schema("PROTOBUF", text, referenced))


def message_class(files: bytes, name: str) -> Any:
    """Return a class of messages, in a pool of its own."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))
