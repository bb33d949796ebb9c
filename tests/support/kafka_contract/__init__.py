"""What holds for Kafka as Shardpost uses it: the same tests on a real broker and on the twin.

A test module subclasses the contracts and gives the fixture `cluster`.
"""
