SELECT (
  SELECT count(*) AS count_1
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT AND jobs.finished_at IS NULL
) AS unfinished, (
  SELECT count(*) AS count_2
  FROM publications
  WHERE publications.site_id = %(p_site_id)s::BIGINT AND publications.live_path IS NOT NULL
) AS live, (
  SELECT count(*) AS count_3
  FROM lanes
  WHERE lanes.site_id = %(p_site_id)s::BIGINT
) AS lanes, (
  SELECT count(*) AS count_4
  FROM topics
  WHERE topics.site_id = %(p_site_id)s::BIGINT
) AS topics, (
  SELECT count(*) AS count_5
  FROM jobs
  WHERE jobs.site_id = %(p_site_id)s::BIGINT
) AS jobs, (
  SELECT count(*) AS count_6
  FROM attempts
  JOIN jobs ON jobs.id = attempts.job_id
  WHERE jobs.site_id = %(p_site_id)s::BIGINT
) AS attempts, (
  SELECT count(*) AS count_7
  FROM revisions
  WHERE revisions.site_id = %(p_site_id)s::BIGINT
) AS revisions
