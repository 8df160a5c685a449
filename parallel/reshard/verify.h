// The verifier: proves that a plan turns the one layout into the other, for every possible timing,
// before it runs. Its proof shares no code with what makes plans but boxes, and the bound of the
// links how a tensor is cut into parts.
//
//  - form: hosts, ranks, messages, moves, tensors and pieces exist; messages share the moves out,
//    each to one message; a message's bytes are those of its moves, and within Plan::most_bytes;
//  - sources: the sender's piece has all elements of the box, with a type that converts. A relayed
//    box has arrived there by earlier messages;
//  - complete, once: of each target piece, each element is written by one move;
//  - no deadlock: follows from the order (plan.h), as all relays are of earlier messages;
//  - links: no host sends or receives much more over its link than the busiest one does in the best
//    of plans (link_bound(), within 5 % and 1 KiB, as no link carries half an element).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan.h"

namespace tutti::parallel::reshard {

/// Bytes between hosts, by host.
struct LinkLoads {
  std::vector<std::uint64_t> sent, received;
  std::uint64_t most() const;
  std::uint64_t total() const;  // sent by all
};
LinkLoads link_loads(const Plan& plan);

/// A number of bytes that the busiest link of any correct plan carries at least, in one direction.
/// It is the largest of
///  - what a host has to receive: what its ranks need and none of them holds, each element once;
///  - for each set of hosts that is all that holds some elements: what these alone hold and another
///    host needs, each element once, shared out equally among them.
/// Links are full-duplex, one a host.
std::uint64_t link_bound(const Layout& from, const Layout& to, const std::vector<int>& hosts);

struct Verdict {
  bool proved = false;
  bool right = false;  // but for what is said of links
  std::string story;   // empty when proved; else what is wrong, and where
  LinkLoads loads;     // when proved
  std::uint64_t bound = 0;
};

/// Any plan, also one that is out of all range, of layouts that have passed check().
Verdict verify(const Layout& from, const Layout& to, const Plan& plan);
/// Throws Error(unproven_plan), with the story, unless it is right: with a link that carries too
/// much a plan is slow, and not wrong.
void require_proof(const Layout& from, const Layout& to, const Plan& plan);

}  // namespace tutti::parallel::reshard
