UPDATE jobs
SET position=CASE WHEN (jobs.position = CASE WHEN (%(p_back)s::BIGINT > 0) THEN %(p_last)s::BIGINT ELSE
    %(p_first)s::BIGINT END) THEN CASE WHEN (%(p_back)s::BIGINT > 0) THEN %(p_first)s::BIGINT ELSE %(p_last)s::BIGINT
    END ELSE jobs.position + %(p_back)s::BIGINT END
WHERE jobs.lane_id = %(p_lane_id)s::BIGINT AND jobs.position BETWEEN %(p_first)s::BIGINT AND %(p_last)s::BIGINT
