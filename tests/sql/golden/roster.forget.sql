DELETE FROM workers
WHERE workers.seen_at < statement_timestamp() - interval '1 hour'
