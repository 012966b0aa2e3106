WITH chosen AS (
  SELECT jobs.id AS id, jobs.topic_id AS topic_id
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.topic_id IS NULL AND jobs.id > %(p_after)s::BIGINT AND jobs.id <=
      %(p_up_to)s::BIGINT AND jobs.id < (
    SELECT max(other.id) AS max_1
    FROM jobs AS other
    WHERE other.site_id = %(p_site_id)s::BIGINT AND other.topic_id IS NULL
  ) AND jobs.state IN ('done', 'skipped') AND jobs.finished_at < statement_timestamp() - %(p_older_seconds)s * interval
      '1 second'
  ORDER BY jobs.id
  LIMIT %(p_rows)s::INTEGER FOR
  UPDATE OF jobs SKIP LOCKED
), sized AS (
  SELECT chosen.id AS id, 1 + (
    SELECT count(*) AS count_1
    FROM attempts
    WHERE attempts.job_id = chosen.id
  ) + (
    SELECT count(*) AS count_2
    FROM events
    WHERE events.job_id = chosen.id
  ) + (
    SELECT count(*) AS count_3
    FROM attempts
    JOIN findings ON findings.topic_id = chosen.topic_id AND findings.fence = attempts.fence
    WHERE attempts.job_id = chosen.id
  ) AS size
  FROM chosen
)
SELECT running.id
FROM (
  SELECT sized.id AS id, sum(sized.size) OVER (ORDER BY sized.id) AS total, row_number() OVER (ORDER BY sized.id) AS n
  FROM sized
) AS running
WHERE running.total <= %(p_rows)s::INTEGER OR running.n = 1
ORDER BY running.id
