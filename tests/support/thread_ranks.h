// Ranks as threads: runs a body once per rank and rethrows the first exception. Also catches the
// error of a call.
#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace tutti::test {

inline void run_thread_ranks(int ranks, const Options& options,
                             const std::function<void(Communicator&)>& body) {
  std::vector<Options> each(static_cast<std::size_t>(ranks), options);
  // As if they were on different hosts: over sockets, in one process, which a sanitizer sees.
  if (const char* const per_host = std::getenv("TUTTI_TEST_RANKS_PER_HOST")) {
    for (int r = 0; r < ranks; ++r) {
      each[static_cast<std::size_t>(r)].host_id = std::to_string(r / std::atoi(per_host));
    }
  }
  std::vector<Communicator> comms = Communicator::create_local(each);
  std::vector<std::exception_ptr> errors(comms.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < comms.size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          body(comms[r]);
        } catch (...) {
          errors[r] = std::current_exception();
          comms[r].abort("a test body threw");
        }
      });
    }
  }
  for (const auto& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

inline void run_thread_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  run_thread_ranks(ranks, Options(), body);
}

/// The Error that a call throws; a default one if it does not throw.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return Error(ErrorCode{}, "no error");
}

}  // namespace tutti::test
