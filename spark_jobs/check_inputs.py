"""Decode some records of each input, and say what comes out; write nothing."""

from shardpost.holders.model.compaction_request import CheckRequest
from shardpost.holders.spark.checked_inputs import check_inputs
from shardpost.spark import driver

if __name__ == "__main__":
    driver.run_job(CheckRequest, check_inputs, noted_as=lambda *_: None)
