INSERT INTO workers (name, seen_at, stages, pid)
VALUES (%(p_name)s::VARCHAR, clock_timestamp(), %(p_stages)s::JSONB, %(p_pid)s::BIGINT)
ON CONFLICT (name) DO
UPDATE
SET seen_at = excluded.seen_at, stages = excluded.stages
