"""What Spark is given beside itself: jars, our own package as a .zip, and where a store is.

`make setup`, or `shardpost jars fetch` where a wheel is installed, puts the jars into
`share/shardpost/jars` of the virtual environment. The .zip is for executors that do not have the
package (--py-files).
"""

import os
import sys
import zipfile
from pathlib import Path

from shardpost.checkout import IS_CHECKOUT, PACKAGE
from shardpost.delta import object_store
from shardpost.delta.object_store import Tables
from shardpost.errors import ShardpostError

JARS = Path(sys.prefix) / "share" / "shardpost" / "jars"
# Of the package, what no executor needs.
_LEFT_OUT = {"__pycache__", "shipped"}


def jars_of(purpose: str) -> list[Path]:
    """Return the jars of a purpose (a file of `ivy/`), sorted; ShardpostError if there are none.

    Those of `spark` are what Spark needs beside itself, the Kafka source, and those of `s3` what it
    needs for tables on S3; those of `broker` are the embedded Kafka broker, with all that it
    depends on.
    """
    folder = JARS / purpose
    found = sorted(folder.glob("*.jar"))
    if not found:
        cure = "make setup" if IS_CHECKOUT else f"shardpost jars fetch {purpose}"
        raise ShardpostError(f"no jars in {folder}: run `{cure}`")
    return found


def packages_zip(folder: Path) -> Path:
    """Write the package as `shardpost.zip` into the folder, atomically; return its path."""
    path = folder / "shardpost.zip"
    temporary = folder / f".shardpost.{os.getpid()}.zip"
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*")):
            if file.is_file() and not _LEFT_OUT & set(file.relative_to(PACKAGE).parts):
                archive.write(file, file.relative_to(PACKAGE.parent))
    temporary.replace(path)
    return path


def store_conf(tables: Tables) -> dict[str, str]:
    """Return what Spark is submitted with for tables on a store; nothing for those of this machine.

    The keys are not among it. Spark takes them from the driver's environment into its Hadoop
    configuration, which goes to the executors, and which its UI and event log show redacted.
    Nothing is renamed: what a task wrote is an upload that the job completes (the magic committer).
    """
    if (where := object_store.address(tables)) is None:
        return {}
    simple = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    temporary = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    cloud = "org.apache.spark.internal.io.cloud"
    factory = "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    s3a = {
        "endpoint.region": where.region,
        "path.style.access": str(where.endpoint is not None).lower(),
        "connection.ssl.enabled": str(not where.is_plain).lower(),
        "aws.credentials.provider": temporary if where.token else simple,
        "connection.establish.timeout": f"{object_store.CONNECT_SECONDS}s",
        "connection.timeout": f"{object_store.REQUEST_SECONDS}s",
        "attempts.maximum": "3",  # of each of its own attempts, which take a minute
        "buffer.dir": "${java.io.tmpdir}/s3a",
        "committer.name": "magic",
        **({"endpoint": where.endpoint} if where.endpoint else {}),
    }
    return {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3": factory,
        "spark.sql.sources.commitProtocolClass": f"{cloud}.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{cloud}.BindingParquetOutputCommitter",
    }
