"""Local services of `specdec up`: Prefect server and worker, MLflow and the REST API."""
