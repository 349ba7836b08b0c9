-- Run once by the PostgreSQL image on an empty data folder. Prefect, MLflow, Optuna and our store each
-- keep an Alembic version table of the same name, so each has a database of its own.
CREATE DATABASE prefect;
CREATE DATABASE mlflow;
CREATE DATABASE optuna;
-- The database `specdec` is made by POSTGRES_DB.
\connect prefect
CREATE EXTENSION IF NOT EXISTS pg_trgm;
