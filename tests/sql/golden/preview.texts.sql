SELECT topics.slug, topics.title, topics.type, topics.brief
FROM topics
WHERE topics.id = any(%(p_ids)s)
