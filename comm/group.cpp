// group(): calls kept until the outermost one ends, then run side by side.
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "comm/impl.h"
#include "comm/kept_call.h"

namespace tutti {
namespace {

struct Kept {
  Communicator::Impl* impl;
  KeptCall kept;
  const Call& call() const { return kept.call(); }
};

struct OpenGroup {
  int depth = 0;
  std::vector<Kept> calls;
};

OpenGroup& open_group() {
  thread_local OpenGroup g;
  return g;
}

/// The bindings of one job: a communicator's collectives, or its messages to or from one peer.
struct Series {
  Communicator::Impl* impl = nullptr;
  Operation* operation = nullptr;
  std::vector<Binding> bindings;
};

/// A rank's messages to itself have to be in one group, or they would wait for ever.
void check_own_messages(const std::vector<Kept>& calls) {
  std::map<const Communicator::Impl*, std::pair<int, int>> own;
  for (const Kept& k : calls) {
    if (k.call().collective != Collective::send_recv || k.call().peer != k.impl->group->rank())
      continue;
    (k.call().sends ? own[k.impl].first : own[k.impl].second) += 1;
  }
  for (const auto& [impl, count] : own) {
    if (count.first == count.second) continue;
    throw Error(
        ErrorCode::invalid_usage,
        fmt::format(
            "rank {} has {} send(s) to itself but {} recv(s) from itself in this group; they must "
            "pair up within one group",
            impl->group->rank(), count.first, count.second));
  }
}

void run_together(const std::vector<Kept>& calls) {
  check_own_messages(calls);
  std::map<std::tuple<Communicator::Impl*, int, bool>, Series> series;
  std::deque<Tables> tables;
  for (const Kept& k : calls) {
    k.impl->wait_for_started();
    const Call& call = k.call();
    if (call.collective == Collective::send_recv) {
      auto& messages = k.impl->messages(call.peer, call.sends);
      Series& s = series[{k.impl, call.peer, call.sends}];
      s.impl = k.impl;
      s.operation = &messages.operation;
      s.bindings.push_back(k.impl->bind_message(messages, call));
    } else {
      Series& s = series[{k.impl, -1, false}];
      s.impl = k.impl;
      s.operation = &k.impl->operation;
      PreparedCall& prepared = k.impl->look_up(call);
      if (const Binding* b = k.impl->bind(prepared, call, false, tables.emplace_back())) {
        s.bindings.push_back(*b);
      }
    }
  }
  WaitPolicy policy;
  const auto fail_all = [&](const std::string& text, ErrorCode code, int culprit) {
    // The other communicators' operations were cut off half way, so they cannot go on either.
    for (const auto& [key, s] : series) {
      if (!s.impl->group->failed()) s.impl->group->fail({code, culprit, text});
    }
  };
  try {
    std::deque<Job> jobs;
    std::vector<Job*> pointers;
    for (auto& [key, s] : series) {
      if (s.bindings.empty()) continue;
      policy = s.impl->policy;
      pointers.push_back(&jobs.emplace_back(*s.operation, s.bindings));
    }
    if (!pointers.empty()) run_to_completion(pointers, policy);
  } catch (const Error& e) {
    fail_all(e.what(), e.code(), e.rank());
    throw;
  } catch (const std::exception& e) {
    fail_all(e.what(), ErrorCode::internal, -1);
    throw;
  }
}

}  // namespace

bool group_is_open() { return open_group().depth > 0; }

void keep_for_group(Communicator::Impl& impl, const Call& call) {
  open_group().calls.push_back({&impl, KeptCall(call)});
}

void group_start() { ++open_group().depth; }

void group_end() {
  OpenGroup& g = open_group();
  if (g.depth == 0)
    throw Error(ErrorCode::invalid_usage, "group_end() without a group_start() on this thread");
  if (--g.depth > 0) return;
  const std::vector<Kept> calls = std::move(g.calls);
  g.calls.clear();
  run_together(calls);
}

void group(const std::function<void()>& body) {
  group_start();
  try {
    body();
  } catch (...) {
    OpenGroup& g = open_group();
    if (--g.depth == 0) g.calls.clear();
    throw;
  }
  group_end();
}

}  // namespace tutti
