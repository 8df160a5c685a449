// A rank that makes calls without end, for tests that kill or stop others:
//
//     fault_rank ACTION MEMORY SEED DEATHS [ID]
//
// ("idle": it asks for errors, until there is one.) It prints "READY", then a dot for every 64
// steps, and when a call fails:
//
//     FIRST code rank time text    what the call has thrown
//     ERROR code rank time text    what the ranks' common communicator says
//     ALSO code rank time text     what shrink() has thrown, before it is called again
//     SURVIVED n                   the n ranks that are left have made checked calls again
//
// Ranks are numbered as they were at the start; the time is that of the steady clock. It ends with
// 0 when DEATHS ranks are gone and it has survived (or all were late only), with 4 when a result
// was wrong, with 5 on another exception. With an ID it meets the others again there, without the
// one that did not come, instead of shrinking.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/environment.h"
#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "tests/comm/random_calls.h"

namespace {

using namespace tutti;
using test::Action;
using test::MemoryUse;
using test::RandomCalls;

const std::map<std::string, Action> kActions{{"call", Action::call},   {"message", Action::message},
                                             {"group", Action::group}, {"start", Action::start},
                                             {"split", Action::split}, {"shrink", Action::shrink},
                                             {"mixed", Action::mixed}, {"idle", Action::mixed}};
const std::map<std::string, MemoryUse> kMemory{{"kept", MemoryUse::kept},
                                               {"windows", MemoryUse::windows},
                                               {"registered", MemoryUse::registered},
                                               {"any", MemoryUse::any}};

template <class... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print(format, std::forward<Arguments>(arguments)...);
  std::fflush(stdout);
}

void say_error(const char* which, const Error& error, const std::vector<int>& names) {
  const bool known = error.rank() >= 0 && static_cast<std::size_t>(error.rank()) < names.size();
  say("{} {} {} {} {}\n", which, name(error.code()),
      known ? names[static_cast<std::size_t>(error.rank())] : -1,
      std::chrono::steady_clock::now().time_since_epoch().count(), error.what());
}

struct What {
  bool idle;  // asks for errors, at first, instead of making calls
  Action action;
  MemoryUse memory;
  unsigned seed;
};

/// Makes `most` calls, or fewer when one fails: then false.
bool make_calls(Communicator& comm, const What& what, unsigned most,
                const std::vector<int>& names) {
  std::optional<RandomCalls> calls;
  try {
    if (what.idle) {
      say("READY\n");
      for (;; usleep(1000)) {
        if (const std::optional<Error> error = comm.error()) throw *error;
      }
    }
    calls.emplace(comm, what.seed, what.action, what.memory);
    for (unsigned step = 0; step < most; ++step) {
      if (step == 4) say("READY\n");
      if (step % 64 == 63) say(".");
      calls->step();
    }
    return true;
  } catch (const Error& error) {
    say_error("FIRST", error, names);
    if (calls) calls->stop();
    return false;
  }
}

/// What `comm`, on which a rank is gone or late, says about that.
Error failure_of(Communicator& comm) {
  for (;;) {
    try {
      comm.barrier();
    } catch (const Error& error) {
      return error;
    }
  }
}

int live(What what, std::size_t deaths) {
  constexpr unsigned kFew = 40;
  Communicator comm = Communicator::from_environment();
  std::vector<int> names;
  for (int r = 0; r < comm.size(); ++r) names.push_back(r);
  const std::size_t last = names.size() - deaths;
  bool survived = false;
  while (!make_calls(comm, what, survived ? kFew : UINT_MAX, names)) {
    const Error error = failure_of(comm);
    say_error("ERROR", error, names);
    std::vector<int> lost;  // a rank that is only late stays
    if (error.code() == ErrorCode::peer_lost) lost.push_back(error.rank());
    for (;;) {
      try {
        comm = comm.shrink(lost);
        break;
      } catch (const Error& another) {
        const bool known = std::find(lost.begin(), lost.end(), another.rank()) != lost.end();
        if (another.code() != ErrorCode::peer_lost || another.rank() < 0 || known) throw;
        say_error("ALSO", another, names);
        lost.push_back(another.rank());
      }
    }
    for (const int r : lost) names[static_cast<std::size_t>(r)] = -1;
    std::erase(names, -1);
    survived = lost.empty() || names.size() <= last;
    what.seed += 1000;
    what.idle = false;
  }
  say("SURVIVED {}\n", comm.size());
  return 0;
}

/// Meets the others; and again at `other_id` when one has not come.
int meet(What what, const char* other_id) {
  const Placement place = placement_from_environment();
  std::vector<int> names;
  for (int r = 0; r < place.size; ++r) names.push_back(r);
  const auto failure = [] {
    try {
      Communicator comm = Communicator::from_environment();
      return failure_of(comm);
    } catch (const Error& error) {
      return error;
    }
  };
  const Error error = failure();
  say_error("ERROR", error, names);
  const int lost = error.rank();
  if (lost < 0 || lost == place.rank) return 5;
  Options patient;  // the others may still be waiting for the first meeting
  patient.rendezvous_timeout = std::chrono::seconds(20);
  Communicator comm =
      Communicator::create(unique_id_from_string(other_id),
                           place.rank - (place.rank > lost ? 1 : 0), place.size - 1, patient);
  if (!make_calls(comm, what, 40, {})) return 5;
  say("SURVIVED {}\n", comm.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  try {
    const What what{argv[1] == std::string("idle"), kActions.at(argv[1]), kMemory.at(argv[2]),
                    static_cast<unsigned>(std::atoi(argv[3]))};
    return argc > 5 ? meet(what, argv[5]) : live(what, std::strtoul(argv[4], nullptr, 10));
  } catch (const Error& error) {
    say_error("LATER", error, {});
    return 5;
  } catch (const std::exception& error) {
    say("WRONG {}\n", error.what());
    return 4;
  }
}
