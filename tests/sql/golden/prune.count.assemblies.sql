WITH "old" AS (
  SELECT jobs.id AS id, jobs.topic_id AS topic_id
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.topic_id IS NULL AND jobs.id > %(p_after)s::BIGINT AND jobs.id <=
      %(p_up_to)s::BIGINT AND jobs.id < (
    SELECT max(other.id) AS max_1
    FROM jobs AS other
    WHERE other.site_id = %(p_site_id)s::BIGINT AND other.topic_id IS NULL
  ) AND jobs.state IN ('done', 'skipped') AND jobs.finished_at < statement_timestamp() - %(p_older_seconds)s * interval
      '1 second'
)
SELECT count(*) AS count_1, coalesce(sum(
  (
    SELECT count(*) AS count_2
    FROM attempts
    WHERE attempts.job_id = "old".id
  )
), %(coalesce_2)s::INTEGER) AS coalesce_1, coalesce(sum(
  (
    SELECT count(*) AS count_3
    FROM events
    WHERE events.job_id = "old".id
  )
), %(coalesce_4)s::INTEGER) AS coalesce_3, coalesce(sum(
  (
    SELECT count(*) AS count_4
    FROM attempts
    JOIN findings ON findings.topic_id = "old".topic_id AND findings.fence = attempts.fence
    WHERE attempts.job_id = "old".id
  )
), %(coalesce_6)s::INTEGER) AS coalesce_5
FROM "old"
