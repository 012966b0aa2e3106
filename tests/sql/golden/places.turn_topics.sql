UPDATE topics
SET position=CASE WHEN (topics.position = CASE WHEN (%(p_back)s::BIGINT > 0) THEN %(p_last)s::BIGINT ELSE
    %(p_first)s::BIGINT END) THEN CASE WHEN (%(p_back)s::BIGINT > 0) THEN %(p_first)s::BIGINT ELSE %(p_last)s::BIGINT
    END ELSE topics.position + %(p_back)s::BIGINT END
WHERE topics.lane_id = %(p_lane_id)s::BIGINT AND topics.position BETWEEN %(p_first)s::BIGINT AND %(p_last)s::BIGINT
