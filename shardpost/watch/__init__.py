"""Watches Kafka, tables, letters, e-mails and runs; says what needs a person."""
