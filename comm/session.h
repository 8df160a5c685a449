// From "rank r of n with this id" to connected ranks. The ranks hand each other their cards
// (session_card.h), and the communicator state comes out. A rank may meet others again later: those
// that it knows already stay connected.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "comm/geometry.h"
#include "transport/rank_group.h"

namespace tutti {

class Membership;
class Reunion;

struct Session {
  Geometry geometry;
  std::shared_ptr<Membership> membership;
  std::unique_ptr<RankGroup> group;
};

/// Meets the other ranks and connects to those that it does not know yet. Collective.
/// `membership`: of this rank, where it has one; null: this is its first communicator.
Session open_session(const UniqueId& id, int rank, int size, const Options& options,
                     std::shared_ptr<Membership> membership = nullptr);
/// Opens a session of ranks that have each other's handles.
Session open_session(const Reunion& reunion, const Options& options,
                     std::shared_ptr<Membership> membership);
/// Some ranks of `parent`. Collective over them.
Session open_subsession(RankGroup& parent, const Geometry& geometry,
                        std::shared_ptr<Membership> membership, RankGroup::Ranks ranks,
                        const Options& options);
/// As many ranks of this process at once as there are options.
std::vector<Session> open_local_sessions(const std::vector<Options>& options);

}  // namespace tutti
