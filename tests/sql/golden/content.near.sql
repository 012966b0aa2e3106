SELECT asked_in.n, found.id
FROM json_to_recordset(CAST(%(asked)s::JSON AS JSON)) AS asked_in(n INTEGER, topic_id BIGINT, target TEXT, most INTEGER)
JOIN topics AS me ON me.id = asked_in.topic_id
JOIN LATERAL (
  SELECT b.id AS id
  FROM (
    SELECT "some".id AS id
    FROM (
      SELECT other.id AS id, other.position AS position, (
        SELECT publications.live_path
        FROM publications
        WHERE publications.topic_id = other.id AND publications.target = asked_in.target
      ) AS live_path
      FROM topics AS other
      WHERE other.lane_id = me.lane_id AND other.position < me.position
      ORDER BY other.position DESC
      LIMIT 64
    ) AS "some"
    WHERE "some".live_path IS NOT NULL
    ORDER BY "some".position DESC
    LIMIT asked_in.most
  ) AS b
  UNION ALL
  SELECT a.id AS id
  FROM (
    SELECT "some".id AS id
    FROM (
      SELECT other.id AS id, other.position AS position, (
        SELECT publications.live_path
        FROM publications
        WHERE publications.topic_id = other.id AND publications.target = asked_in.target
      ) AS live_path
      FROM topics AS other
      WHERE other.lane_id = me.lane_id AND other.position > me.position
      ORDER BY other.position
      LIMIT 64
    ) AS "some"
    WHERE "some".live_path IS NOT NULL AND (
      SELECT count(*) AS count_1
      FROM (
        SELECT "some".id AS id
        FROM (
          SELECT other.id AS id, other.position AS position, (
            SELECT publications.live_path
            FROM publications
            WHERE publications.topic_id = other.id AND publications.target = asked_in.target
          ) AS live_path
          FROM topics AS other
          WHERE other.lane_id = me.lane_id AND other.position < me.position
          ORDER BY other.position DESC
          LIMIT 64
        ) AS "some"
        WHERE "some".live_path IS NOT NULL
        ORDER BY "some".position DESC
        LIMIT asked_in.most
      ) AS those
    ) < asked_in.most
    ORDER BY "some".position
    LIMIT asked_in.most
  ) AS a
) AS found ON true
