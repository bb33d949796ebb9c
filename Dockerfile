# One image for all that is Shardpost's own: the parts of Airflow, Spark's master, workers and drivers,
# the commands. docker-compose.yml builds it; docs/cluster.md says how to run it elsewhere.
#
# Its layers, from what seldom changes to what each commit changes: Java, packages, jars, our code.
FROM python:3.11-slim-bookworm AS java
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Security updates of Debian are wanted, so its packages are not pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

FROM java AS packages
WORKDIR /opt/shardpost
COPY requirements.in requirements.txt pyproject.toml hatch_build.py LICENSE ./
COPY ivy/ ivy/
COPY scripts/setup scripts/
COPY shardpost/__init__.py shardpost/
# The jars are put aside: a layer of their own.
RUN scripts/setup --image && mv .venv/share /opt/share

FROM java
WORKDIR /opt/shardpost
# The user of Airflow's official chart: 50000, of group 0.
RUN useradd --no-log-init --uid 50000 --gid 0 --home-dir /var/lib/shardpost shardpost \
    && install --directory --owner=50000 --group=0 --mode=0700 /var/lib/shardpost \
    && install --directory --owner=50000 --group=0 --mode=0770 /var/lib/spark
ENV PATH=/opt/shardpost/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SHARDPOST_HOME=/var/lib/shardpost \
    AIRFLOW_HOME=/var/lib/shardpost/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/shardpost/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/shardpost/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False
COPY --from=packages /opt/shardpost/.venv/ .venv/
COPY --from=packages /opt/share/ .venv/share/
COPY --from=packages /opt/shardpost/requirements.txt ./
COPY pyproject.toml LICENSE ./
COPY deploy/spark.conf deploy/
COPY docs/runbook.md docs/
COPY dags/ dags/
COPY plugins/ plugins/
COPY spark_jobs/ spark_jobs/
COPY shardpost/ shardpost/
RUN PYTHONDONTWRITEBYTECODE='' python3 -m compileall -q dags plugins spark_jobs shardpost
USER 50000:0
# Spark's drivers leave folders where they are started.
WORKDIR /tmp
CMD ["shardpost", "--help"]
