"""What DAGs share: the operator for Spark jobs, approvals, params, defaults, failures, lineage.

With the embedded stack the only place of the package that imports Airflow.
"""
