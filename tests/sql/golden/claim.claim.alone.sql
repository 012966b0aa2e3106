WITH chosen AS (
  SELECT due.id AS id, due.name AS name, due.overrides AS overrides, prefixes_in.n AS n, coalesce(due.lease_seconds,
      prefixes_in.lease_seconds) AS lease_seconds
  FROM json_to_recordset(CAST(%(prefixes)s::JSON AS JSON)) AS prefixes_in(n INTEGER, site_id BIGINT, stage TEXT,
      priority SMALLINT, share INTEGER, lease_seconds FLOAT, floor_at TIMESTAMP WITH TIME ZONE, floor_id BIGINT)
  JOIN LATERAL (
    SELECT j.id AS id, lane.name AS name, lane.overrides AS overrides, lane.lease_seconds AS lease_seconds
    FROM jobs AS j
    LEFT OUTER JOIN LATERAL (
      SELECT lanes.name AS name, lanes.state AS state, lanes.overrides AS overrides, CAST((lanes.overrides ->
          prefixes_in.stage) ->> 'lease_seconds' AS FLOAT) AS lease_seconds
      FROM lanes
      WHERE lanes.id = j.lane_id
      LIMIT 1
    ) AS lane ON true
    WHERE j.state = 'pending' AND j.site_id = prefixes_in.site_id AND j.stage = prefixes_in.stage AND j.priority =
        prefixes_in.priority AND j.run_at <= statement_timestamp() AND (j.run_at, j.id) > (prefixes_in.floor_at,
        prefixes_in.floor_id) AND (j.run_until IS NULL OR j.run_until > statement_timestamp()) AND j.attempts <
        j.max_attempts AND j.alone AND coalesce(lane.state, 'active') = 'active' AND (EXISTS (
      SELECT *
      FROM sites
      WHERE sites.id = prefixes_in.site_id AND sites.state = 'active'
    )) AND NOT (EXISTS (
      SELECT *
      FROM stages
      WHERE stages.site_id = prefixes_in.site_id AND stages.name = prefixes_in.stage AND stages.state = 'paused'
    ))
    ORDER BY j.run_at, j.id
    LIMIT prefixes_in.share
    FOR NO KEY UPDATE OF j SKIP LOCKED
  ) AS due ON true
), claimed AS (
  UPDATE jobs
  SET state='reserved', attempts=(jobs.attempts + %(attempts_1)s::INTEGER), token=%(p_token)s::UUID,
      fence=nextval('fences'), reserved_by=%(p_worker)s::VARCHAR, reserved_at=clock_timestamp(),
      lease_expires_at=(clock_timestamp() + chosen.lease_seconds * interval '1 second')
  FROM chosen
  WHERE jobs.id = any(array(
    (
      SELECT chosen.id
      FROM chosen
    )
  )) AND jobs.id = chosen.id AND jobs.state IS NOT DISTINCT
  FROM 'pending'
  RETURNING jobs.id, jobs.site_id, jobs.lane_id, jobs.topic_id, jobs.position, jobs.pass, jobs.stage, jobs.round,
      jobs.max_rounds, jobs.cleared, jobs.state, jobs.hold, jobs.approved, jobs.priority, jobs.release_at,
      jobs.retry_at, jobs.run_at, jobs.run_until, jobs.gate_id, jobs.slot, jobs.attempts, jobs.max_attempts,
      jobs.given_back, jobs.snoozed, jobs.alone, jobs.token, jobs.fence, jobs.reserved_by, jobs.reserved_at,
      jobs.lease_expires_at, jobs.cancel_requested, jobs.error_class, jobs.created_at, jobs.finished_at, chosen.n,
      chosen.lease_seconds, chosen.name AS lane, CAST((chosen.overrides -> jobs.stage) ->> 'deadline_seconds' AS FLOAT)
      AS deadline_seconds
)
SELECT claimed.topic_id AS topic_id, sites.slug AS topic_site, claimed.lane AS topic_lane, topics.slug AS topic_slug,
    topics.title AS topic_title, topics.type AS topic_type, topics.path AS topic_path, claimed.position AS
    topic_position, topics.brief AS topic_brief, claimed.pass AS topic_number, claimed.round AS topic_round,
    revisions.title AS draft_title, revisions.description AS draft_description, revisions.body AS draft_body,
    revisions.front_matter AS draft_fields, revisions.lineage AS draft_lineage, claimed.id, sites.slug AS site,
    claimed.site_id, claimed.stage, claimed.fence, claimed.attempts, claimed.max_attempts, claimed.slot IS NOT NULL AS
    gated, claimed.lease_seconds, revisions.id AS revision_id, coalesce(topics.input_hash, %(coalesce_1)s::VARCHAR) AS
    input_hash, coalesce(claimed.approved = coalesce(revisions.content_hash, %(coalesce_2)s::VARCHAR), false) AS
    approved, here.name IS NOT NULL AND NOT (EXISTS (
  SELECT *
  FROM stages AS earlier
  WHERE earlier.site_id = claimed.site_id AND earlier.ordinal < here.ordinal AND earlier.state != 'retired'
)) AS begins, claimed.run_at, claimed.priority, claimed.deadline_seconds
FROM claimed
JOIN sites ON sites.id = claimed.site_id
LEFT OUTER JOIN stages AS here ON here.site_id = claimed.site_id AND here.name = claimed.stage
LEFT OUTER JOIN topics ON topics.id = claimed.topic_id
LEFT OUTER JOIN revisions ON revisions.id = topics.revision_id
ORDER BY claimed.n, claimed.run_at, claimed.id
