INSERT INTO jobs (site_id, stage, state, max_attempts, run_at, hold, cancel_requested)
SELECT sites.id, 'assemble', 'pending', %(p_max_attempts)s::INTEGER AS anon_1, clock_timestamp() + CASE WHEN
    (%(p_delay_seconds)s::INTEGER > %(param_1)s::INTEGER) THEN greatest(%(p_delay_seconds)s::INTEGER * interval '1
    second', least(coalesce(
  (
    SELECT max(took.ended_at - took.reserved_at) * 4 AS anon_3
    FROM attempts AS took
    WHERE took.job_id = (
      SELECT max(last.id) AS max_1
      FROM jobs AS last
      WHERE last.site_id = sites.id AND last.topic_id IS NULL
    ) AND took.outcome = 'done'
  ), %(p_delay_seconds)s::INTEGER * interval '1 second'
), interval '10 minutes')) ELSE %(p_delay_seconds)s::INTEGER * interval '1 second' END AS anon_2, NULL AS anon_4, false
    AS anon_5
FROM sites
WHERE sites.id = any(%(p_site_ids)s)
ON CONFLICT DO NOTHING
RETURNING jobs.id
