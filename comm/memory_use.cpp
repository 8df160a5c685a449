// How much memory a communicator holds, and giving it back while it is idle.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>

#include "comm/communicator.h"
#include "comm/impl.h"
#include "comm/started_calls.h"
#include "core/wait.h"
#include "transport/host/pages.h"

namespace tutti {

MemoryUse Communicator::memory() const {
  Impl& i = impl();
  i.check_process();
  const Impl::Turn turn(i.turns);
  const Links::Memory links = i.group->links().memory();
  ControlBlock& control = i.group->control();
  const std::size_t block = taken_bytes({reinterpret_cast<std::byte*>(&control), sizeof control});
  return {links.messages, i.workspace.bytes(), block + links.rest};
}

// Two ranks must not be at this at different times: one would send into memory that the other gives
// back. So they begin together, with an exchange after which no rank has sent anything that another
// has not taken, and none goes on before all are done. Both take but lines of their links that
// stay.
void Communicator::release_memory() {
  Impl& i = impl();
  i.check_process();
  refuse_to_meet("release_memory()");
  const Impl::Turn turn(i.turns);
  // A call may be under way on the engine's thread a moment longer after its future is ready.
  wait_until(deadline_after(std::chrono::seconds(1)), [&] { return !i.has_started(); });
  // The first rank that cannot.
  std::int32_t busy = i.has_started() ? rank() : size();
  Call exchange{.collective = Collective::all_reduce,
                .in = &busy,
                .out = &busy,
                .count = 1,
                .type = DataType::int32,
                .op = ReduceKind::min,
                .label = Signature::kReleaseMemory};
  const auto exchange_all = [&] {
    if (!i.has_started()) return i.run_in_turn(exchange);
    Future(i.started_calls().start(exchange)).wait();
  };
  exchange_all();
  if (busy < size()) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("release_memory(): rank {} has started calls that are not over; wait "
                            "for their futures first",
                            busy),
                busy);
  }
  i.group->links().release_memory();
  exchange_all();
  i.workspace.release();
}

}  // namespace tutti
