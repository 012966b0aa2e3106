WITH "old" AS (
  SELECT jobs.id AS id, jobs.topic_id AS topic_id
  FROM topics
  JOIN jobs ON jobs.topic_id = topics.id AND jobs.pass < topics.pass
  WHERE topics.site_id = %(p_site_id)s::BIGINT AND topics.pass > 1 AND topics.id > %(p_after)s::BIGINT AND topics.id <=
      %(p_up_to)s::BIGINT AND NOT (EXISTS (
    SELECT *
    FROM gates
    WHERE gates.lane_id = jobs.lane_id AND gates.width = 1 AND gates.passed < jobs.position
  )) AND jobs.state IN ('done', 'skipped') AND jobs.finished_at < statement_timestamp() - %(p_older_seconds)s * interval
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
