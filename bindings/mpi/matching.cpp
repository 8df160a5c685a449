#include "bindings/mpi/matching.h"

#include "bindings/mpi/interface.h"
#include "bindings/mpi/request.h"

namespace tutti::mpi {
namespace {

// So many empty queues of a communicator are kept, for programs that use few tags again and again.
constexpr std::size_t kEmptyKept = 256;

bool is_wild(int source, int tag) { return source == MPI_ANY_SOURCE || tag == MPI_ANY_TAG; }

bool fits(int wanted_source, int wanted_tag, const Envelope& e) {
  return (wanted_source == MPI_ANY_SOURCE || wanted_source == e.source) &&
         (wanted_tag == MPI_ANY_TAG || wanted_tag == e.tag);
}

template <class Map>
void drop_empty(Map& map, typename Map::iterator at) {
  if (at->second.empty() && map.size() > kEmptyKept) map.erase(at);
}

}  // namespace

Matching::Context& Matching::context(std::uint64_t id) {
  if (newest_ == nullptr || newest_id_ != id) {
    newest_ = &contexts_[id];
    newest_id_ = id;
  }
  return *newest_;
}

void Matching::post(Request& receive) {
  Context& c = context(receive.context);
  const Posted posted{&receive, ++number_};
  ++waiting_;
  if (is_wild(receive.peer, receive.tag)) {
    c.wild.push_back(posted);
  } else {
    c.exact[key(receive.peer, receive.tag)].push_back(posted);
  }
}

Request* Matching::take_receive(const Envelope& e) {
  Context& c = context(e.context);
  const auto exact = c.exact.find(key(e.source, e.tag));
  const bool has_exact = exact != c.exact.end() && !exact->second.empty();
  auto wild = c.wild.begin();
  while (wild != c.wild.end() && !fits(wild->receive->peer, wild->receive->tag, e)) ++wild;
  const bool has_wild = wild != c.wild.end();
  if (!has_exact && !has_wild) return nullptr;
  --waiting_;
  if (has_exact && (!has_wild || exact->second.front().number < wild->number)) {
    Request* const receive = exact->second.front().receive;
    exact->second.pop_front();
    drop_empty(c.exact, exact);
    return receive;
  }
  Request* const receive = wild->receive;
  c.wild.erase(wild);
  return receive;
}

bool Matching::withdraw(Request& receive) {
  Context& c = context(receive.context);
  const auto is_it = [&](const Posted& p) { return p.receive == &receive; };
  std::size_t erased = 0;
  if (is_wild(receive.peer, receive.tag)) {
    erased = std::erase_if(c.wild, is_it);
  } else if (const auto exact = c.exact.find(key(receive.peer, receive.tag));
             exact != c.exact.end()) {
    erased = std::erase_if(exact->second, is_it);
    drop_empty(c.exact, exact);
  }
  waiting_ -= erased;
  return erased > 0;
}

void Matching::keep(Arrived message) {
  Context& c = context(message.envelope.context);
  const Key k = key(message.envelope.source, message.envelope.tag);
  c.arrived.push_back(std::make_unique<Arrived>(std::move(message)));
  c.by_key[k].push_back(std::prev(c.arrived.end()));
}

Matching::Messages::iterator Matching::look(Context& c, int source, int tag) {
  if (c.arrived.empty()) return c.arrived.end();
  if (!is_wild(source, tag)) {
    const auto found = c.by_key.find(key(source, tag));
    return found == c.by_key.end() || found->second.empty() ? c.arrived.end()
                                                            : found->second.front();
  }
  auto at = c.arrived.begin();
  while (at != c.arrived.end() && !fits(source, tag, (*at)->envelope)) ++at;
  return at;
}

const Arrived* Matching::find(std::uint64_t id, int source, int tag) {
  Context& c = context(id);
  const auto at = look(c, source, tag);
  return at == c.arrived.end() ? nullptr : at->get();
}

std::unique_ptr<Arrived> Matching::take(std::uint64_t id, int source, int tag) {
  Context& c = context(id);
  const auto at = look(c, source, tag);
  if (at == c.arrived.end()) return nullptr;
  std::unique_ptr<Arrived> message = std::move(*at);
  // The oldest of all that match is the oldest of its source and tag.
  const auto queue = c.by_key.find(key(message->envelope.source, message->envelope.tag));
  queue->second.pop_front();
  drop_empty(c.by_key, queue);
  c.arrived.erase(at);
  return message;
}

void Matching::forget(std::uint64_t id) {
  const auto found = contexts_.find(id);
  if (found == contexts_.end() || !found->second.arrived.empty() || !found->second.wild.empty()) {
    return;
  }
  for (const auto& [k, queue] : found->second.exact) {
    if (!queue.empty()) return;
  }
  newest_ = nullptr;
  contexts_.erase(found);
}

}  // namespace tutti::mpi
