"""Oracles: whether an eviction plan keeps the rules, and which plan is the best, by plain loops that share no code with the engine.

They read model values and placements, and import nothing of `muster.engine`, `muster.plugins` and `muster.state.derived`. Slow and
obvious on purpose. Where the rules leave a choice, this is how they are read here:

- **Share.** A queue's share in a dimension is its `deserved` there, and at least its `guarantee`; where either was written the
  dimension is configured. An explicit zero in `deserved` is a share of nothing, in `guarantee` it is nothing written. Configured
  shares count with the plugin `capacity` or `elastic-quota`, shares by weight with `proportion`. `drf` orders queues and gives
  nobody a share. A parent that configures nothing has no share, whatever its children have.
- **Contested dimensions L.** Packed in one dimension alone, on the nodes that the filters allow, with the placements before the
  plan (what is being released counts as free, what is nominated does not). The number of pods is no dimension.
- **Crossing.** A unit crosses the line of a level when the level was at or above its share in a dimension that it configures and
  that the unit uses, and is below it afterwards. What was below before is not crossed again. After a crossing no further unit of
  that level is taken. A guarantee is stricter: a unit never leaves a level below a guarantee in a dimension that the unit uses.
- **Order of giving.** A plan is legal if its units can be taken in some order so that each may be taken when its turn comes.
- **Limits.** A queue's own, and what its parent may have without what is guaranteed to its siblings, where a plugin reads
  guarantees. Those that add up to more than there is are scaled down in proportion, and leave each queue its own.
- **Job-preempt.** Among those who only borrow priority decides: the rule for queues of which nobody has a share does not apply, nor
  does the one for shares that add up to more than there is.
- **Nobody has a share.** Compared is the giver after each unit with the taker as the finished plan leaves it.
- **Shares that add up to more than there is.** Siblings' shares are added and compared with what all nodes have.
- **Priority.** A gang that ends whole counts with the gang's priority, any other member with the pod's own.
- **Broken.** A gang is broken when for 60 s it has had fewer members placed and nominated than a minimum, as far as cycles showed.
- **Order of plans.** For one pod the sum of the victims' priorities above the lowest possible counts right after the highest, so
  that fewer victims go before a lower cost; for reclaim both come after the cost. Priority of a queue, share and ratio are those of
  the queue just below the common ancestor. Gangs left below their minimum are those that the plan takes members from.
- **Cost of victims.** For each victim, surplus or not, the sum over L of its request as a part of what the ask needs there, times
  (1 + hours of lost work + hours to restart) with the plugin `lost-work`.
- **Needless.** A unit is needless if without it the members can still be placed by exact packing (on the same node for one pod, on
  the nominated nodes under a topology constraint, anywhere otherwise) and limits, quotas and shares on the asker's path still hold.
- **Taking.** On the way to each queue that gives, one level of the taker has a share of something in L. What is evicted elsewhere
  gives it no such share.
- **GangGroups over several queues.** The queues of the group take their turns in some order. Each takes units that it lacks, beside
  those that were taken before, and that it may have: those of its own queue by priority, others by shares. What is left over is
  free for whoever comes later. A gang does not end for a queue for which its surplus would do. The order of queues that give is
  that of the first role's queue; all queues of the group are its own. Costs count what is contested for the roles that do not fit
  by themselves, or for all where each does. Job-preempt is judged by what each role lacks in amounts.
- **Not judged.** Room in worlds where ports, volumes, inter-pod terms or plugins of others decide; consolidation; pauses and
  doubled run times.
"""
