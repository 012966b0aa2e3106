"""Rules of workers and of those who clean up after them."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, multiple, precondition, rule

from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.work import Expired, Prefix
from pipeline.states import JobState as S
from pipeline.testing.database import SCHEMA
from pipeline.views import Claim
from tests.factories import draft_of, finding
from tests.stateful import saying
from tests.stateful.model import ASSEMBLE, Job, World
from tests.stateful.saying import Said
from tests.stateful.stand import Stand, shift

LEASE = timedelta(hours=1)  # it ends when a rule says so
VERBS = [v.value for v in Verb]
ONWARD = ["advance"] * 6 + ["hold", "fail", *VERBS]
SPOILT = {"log": "\x00"}  # what PostgreSQL cannot store

counts = st.integers(1, 3)


class WorkRules(Stand):
    """Claim, renew, acknowledge with live claims and with stale ones, expire, reap."""

    claims = Bundle("claims")
    candidates = Bundle("candidates")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.claimed: dict[int, Claim] = {}  # by fence: all that there ever were
        self.said: dict[int, Ack] = {}  # by fence: the last word
        self.read: dict[int, int] = {}  # by fence: the version of the topic, or what the site had changed

    def set_out(self, data: st.DataObject) -> None:
        for stage in ["draft", "check", "publish"][: data.draw(st.integers(0, 3), "how far")]:
            got = self.claim([("acme", stage, data.draw(st.integers(1, 4), "how many"))])
            self.acknowledge([self.ack(c, "advance", data) for c in got[: data.draw(st.integers(1, 4), "of them")]])

    def live(self) -> list[Claim]:
        return [self.claimed[job.fence] for job in self.reserved() if job.fence is not None]

    def claim(self, prefixes: list[tuple[str, str, int]]) -> list[Claim]:
        """Claim by (site, stage, share), and look whether the model allows what came out."""
        asked = [Prefix(self.world.sites[s].id, stage, 2, share, LEASE) for s, stage, share in prefixes]

        claimed: list[Claim] = []

        def act() -> list[Claim]:
            claimed[:] = self.services.work.claim(asked, "worker")
            return claimed

        # Which of the due jobs come out is the database's to say: it is asked first, and the model must allow it.
        before = self.world
        heard = self.patiently(act)
        for site, stage, share in prefixes:
            due = {j.id: j for j in before.sites[site].claimable(stage)}
            got = [c for c in heard if (c.site, c.stage) == (site, stage)]
            assert {c.job_id for c in got} <= due.keys(), f"claimed what is not due: {got}"
            self.same(f"how many came out of {site} {stage}", min(share, len(due)), len(got))
            for claim in got:
                self._look_at(claim, due[claim.job_id])
        self.same("one token for all", min(1, len(heard)), len({c.token for c in heard}))
        self.same("a fence for each", len(heard), len({c.fence for c in heard} - self.claimed.keys()))

        def predict(world: World) -> None:
            for claim in heard:
                found = world.find(claim.job_id)
                assert found is not None
                site, job = found
                self.claimed[claim.fence] = claim
                self.read[claim.fence] = site.topics[job.slug].version if job.slug is not None else site.changed
                saying.claim(site, world, job, claim.fence)

        self.do("claim", predict, lambda: None)
        return heard

    def _look_at(self, claim: Claim, job: Job) -> None:
        site = self.world.sites[claim.site]
        first = job.slug is not None and site.open_stages()[0].ordinal >= site.ordinal(job.stage)
        draft = site.topics[job.slug].draft if job.slug is not None else None
        self.same(
            "the claim",
            (
                job.attempts + 1,
                job.permitted,
                job.slot,
                first,
                job.approved is not None and job.approved == (draft or ""),
            ),
            (claim.attempt, claim.max_attempts, claim.gated, claim.begins, claim.approved),
        )
        if claim.topic is not None:
            of = (claim.topic.slug, claim.topic.lane, claim.topic.position, claim.topic.number, claim.topic.round)
            self.same("its topic", (job.slug, job.lane, job.position, job.number, job.round), of)

    def acknowledge(self, acks: list[Ack]) -> None:
        batch = [self._said(ack) for ack in acks]
        foretold, heard = self.do(
            "acknowledge",
            lambda world: saying.acknowledge(world, batch),
            lambda: self.services.work.acknowledge(acks, wait=True),
        )
        assert foretold is not None
        assert heard is not None
        fates = {fence: (fate.value, heard.outcomes.get(fence)) for fence, fate in heard.fates.items()}
        self.same("the fates", foretold, fates)
        for ack in acks:
            self.said[ack.claim.fence] = ack
            self.coverage.replies[f"{ack.verb}: {foretold[ack.claim.fence][0]}"] += 1
            if ack.metrics:
                self.coverage.codes["22P05"] += 1

    def _said(self, ack: Ack) -> Said:
        claim = ack.claim
        verb, error = ack.verb.value, ack.error_class
        if ack.metrics == SPOILT:
            verb, error = "repair", "DataError"
        advances = verb == "advance"
        return Said(
            claim.job_id, claim.fence, verb, ack.to_stage if verb == "reject" else None, error,
            draft=ack.draft.hash if ack.draft is not None and advances else None,
            made_from=self.read[claim.fence] if claim.begins and advances else None,
            touches=ack.touches and ack.metrics != SPOILT,
            built=ack.built[0] if ack.built is not None and advances else None,
        )  # fmt: skip

    def ack(self, claim: Claim, verb: str, data: st.DataObject, *, spoilt: bool = False) -> Ack:
        said = Verb(verb)
        if claim.topic is None:
            if said in (Verb.REJECT, Verb.HOLD):  # no assembly says so
                said = Verb.ADVANCE
            return Ack(claim, said, built=(self.read[claim.fence], ""), error_class="Broken")
        stages = self.world.sites[claim.site].stages
        return Ack(
            claim, said,
            draft=draft_of(claim) if said is Verb.ADVANCE and claim.stage == "draft" else None,
            findings=(finding(),) if said is Verb.REJECT else (),
            to_stage=data.draw(st.sampled_from([None, *stages]), "to stage") if said is Verb.REJECT else None,
            hold="please look" if said is Verb.HOLD else None,
            error_class="Broken" if said in (Verb.RETRY, Verb.FAIL, Verb.REPAIR, Verb.RELEASE) else None,
            metrics=SPOILT if spoilt else None,
            touches=claim.stage == "publish",
        )  # fmt: skip

    # The rules. Some stand here under two names: they are to come more often than the rest.

    @rule(target=claims, data=st.data(), prefixes=counts, share=counts)
    def claims_by_prefixes(self, data: st.DataObject, prefixes: int, share: int) -> Any:
        wanted = {}
        for _ in range(prefixes):
            site = self.site(data)
            stage = data.draw(st.sampled_from([*site.stages, ASSEMBLE]), "stage")
            wanted[site.slug, stage] = share
        return multiple(*self.claim([(s, stage, n) for (s, stage), n in wanted.items()]))

    @rule(target=claims, share=counts, verbs=st.lists(st.sampled_from(ONWARD), min_size=1, max_size=3), data=st.data())
    def works_at_a_stage(self, share: int, verbs: list[str], data: st.DataObject) -> Any:
        return self._work(share, verbs, data)

    def _work(self, share: int, verbs: list[str], data: st.DataObject) -> Any:
        """Claim where something is due, and end as many of them as there are verbs, in one batch."""
        if not self._all_due():
            return multiple()
        slug, stage = self._due(data)
        got = self.claim([(slug, stage, share)])
        self.acknowledge([self.ack(c, verb, data) for c, verb in zip(got, verbs, strict=False)])
        return multiple(*got)

    def _all_due(self) -> list[tuple[str, str]]:
        sites = self.world.sites.items()
        return [(slug, name) for slug, s in sites for name in (*s.stages, ASSEMBLE) if s.claimable(name)]

    def _due(self, data: st.DataObject) -> tuple[str, str]:
        """A site and a stage where something is due."""
        return data.draw(st.sampled_from(self._all_due()), "where")

    @precondition(lambda self: any(s.claimable(g) for s in self.world.sites.values() for g in s.stages))
    @rule(target=claims, data=st.data(), share=counts)
    def claims_what_is_due(self, data: st.DataObject, share: int) -> Any:
        return multiple(*self.claim([(*self._due(data), share)]))

    @precondition(lambda self: self.reserved())
    @rule(data=st.data(), verbs=st.lists(st.sampled_from(VERBS), min_size=1, max_size=3), spoilt=st.integers(0, 9))
    def says_what_came_of_it(self, data: st.DataObject, verbs: list[str], spoilt: int) -> None:
        """Of one to three live claims, whoever holds them, in one batch; a single one may bring what cannot be kept."""
        live = {f"{c.site} {c.stage} {c.topic.slug if c.topic else ''}": c for c in self.live()}
        some = data.draw(st.permutations(sorted(live)), "of which")[: len(verbs)]
        bad = spoilt == 9 and len(some) == 1 and live[some[0]].topic is not None
        self.acknowledge([self.ack(live[n], v, data, spoilt=bad) for n, v in zip(some, verbs, strict=False)])

    @rule(target=claims, share=counts, verbs=st.lists(st.sampled_from(ONWARD), min_size=2, max_size=3), data=st.data())
    def works_on(self, share: int, verbs: list[str], data: st.DataObject) -> Any:
        return self._work(share, verbs, data)

    @rule(claim=claims, verb=st.sampled_from(VERBS), data=st.data())
    def says_it_late(self, claim: Claim, verb: str, data: st.DataObject) -> None:
        """Of any claim that there ever was: most are over."""
        self.acknowledge([self.ack(claim, verb, data)])

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def says_it_again(self, data: st.DataObject) -> None:
        """The answer was lost on its way: the very same is sent once more."""
        last = sorted(self.said)[-6:]
        ack = self.said[last[data.draw(st.integers(0, len(last) - 1), "which")]]
        self.acknowledge([ack])

    @rule(claim=claims, data=st.data())
    def renews(self, claim: Claim, data: st.DataObject) -> None:
        """One claim of any age, with all that are live."""
        held = {c.job_id: c for c in [*self.live(), claim]}
        if data.draw(st.booleans(), "alone"):
            held = {claim.job_id: claim}
        foretold, heard = self.do(
            "renew",
            lambda world: {c.fence: saying.renew(world, c.job_id, c.fence) for c in held.values()},
            lambda: self.services.work.renew(held.values()),
        )
        assert foretold is not None
        assert heard is not None
        self.same("renewed", {fence: told for fence, told in foretold.items() if told is not None}, heard)
        self.coverage.replies.update(f"renew: {'renewed' if told else 'lost'}" for told in foretold.values())

    @rule(claim=claims)
    def publishes(self, claim: Claim) -> None:
        """Through the ledger, with a live claim or a stale one."""
        topic = claim.topic
        if topic is None:
            return
        job = next(((s, j) for s, j in self.world.jobs() if j.id == claim.job_id), None)
        ours = job is not None and job[1].fence == claim.fence
        answer = "LeaseLost"
        before = self.reader.whole()
        try:
            done = self.patiently(
                lambda: self.services.ledger.publish(
                    claim, target="files", key=topic.path, hash=f"hash {claim.fence}", look=lambda: None,
                    act=lambda: "", still_ours=lambda: True, topic_id=topic.id, revision=None, inputs="",
                )
            )  # fmt: skip
            answer = "done" if done else "nothing to do"
        except Exception as error:
            if type(error).__name__ != "LeaseLost":
                raise
        self.same("answer to publish", "done" if ours else "LeaseLost", answer)
        self.coverage.steps += 1
        self.coverage.replies[f"publish: {answer}"] += 1
        if not ours:
            self.same("every table", before, self.reader.whole())
        self.compare()

    @precondition(lambda self: self.reserved())
    @rule(data=st.data(), renewed=st.sampled_from([False, False, True]))
    def a_lease_is_over_and_reaped(self, data: st.DataObject, renewed: bool) -> None:
        """At once, or after a renewal that comes between the reaper's look and its write."""
        live = self.live()
        held = live[data.draw(st.integers(0, len(live) - 1), "whose")]
        self.expire("one lease", [held.job_id])
        seen = next(e for e in self.patiently(lambda: self.services.work.expired()) if e.fence == held.fence)
        if renewed:
            self.do("renew", lambda world: saying.renew(world, held.job_id, held.fence),
                    lambda: self.services.work.renew([held]))  # fmt: skip
        self.reap(seen, gone=False)

    @precondition(lambda self: self.reserved())
    @rule(data=st.data(), what=st.sampled_from(["one lease", "one lease", "every lease", "all rounds"]))
    def patience_ends(self, data: st.DataObject, what: str) -> None:
        """Leases run out; or as if validate had sent a pass back as often as it may."""
        held = [j.id for j in self.reserved()]
        if what != "every lease":
            held = [held[data.draw(st.integers(0, len(held) - 1), "whose")]]
        self.expire(what, held)

    def expire(self, what: str, held: list[int]) -> None:
        change = "max_rounds = round" if what == "all rounds" else "lease_expires_at = reserved_at"

        def predict(world: World) -> None:
            for _, job in world.jobs():
                if job.id in held and what == "all rounds":
                    job.rounds = job.round
                elif job.id in held:
                    job.over = True

        statement = f"UPDATE {SCHEMA}.jobs SET {change} WHERE id = ANY(:ids)"
        self.do(what, predict, lambda: shift(self.ground.engine, statement, ids=held))

    @precondition(lambda self: self.reserved())
    @rule(target=candidates, data=st.data())
    def a_reaper_looks(self, data: st.DataObject) -> Any:
        site = self.site(data)
        foretold, heard = self.do(
            "look",
            lambda world: {j.id: j.over for j in world.sites[site.slug].jobs if j.state is S.RESERVED},
            lambda: self.services.work.expired(site.id),
        )
        assert heard is not None
        self.same("candidates", foretold, {e.job_id: e.over for e in heard})
        return multiple(*heard)

    @rule(candidate=candidates, gone=st.booleans())
    def a_reaper_takes(self, candidate: Expired, gone: bool) -> None:
        """What it has read a while ago: the lease may have been renewed, the job be another's."""
        self.reap(candidate, gone=gone)

    def reap(self, candidate: Expired, *, gone: bool) -> None:
        foretold, heard = self.do(
            "reap",
            lambda world: saying.reap(world, candidate.job_id, candidate.fence, gone=gone),
            lambda: self.services.work.reap([candidate], holder_is_gone=gone),
        )
        assert heard is not None
        self.same("what was reaped", foretold, heard.outcomes.get(candidate.fence))
        self.coverage.replies[f"reap: {'taken' if foretold else 'kept'}"] += 1
