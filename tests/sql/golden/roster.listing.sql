SELECT workers.name, workers.pid, workers.started_at, workers.seen_at, CAST(EXTRACT(epoch FROM statement_timestamp() -
    workers.seen_at) AS FLOAT) AS seconds, workers.stages
FROM workers
ORDER BY workers.started_at, workers.name
