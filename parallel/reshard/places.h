// Where the two ends of a move lie.
#pragma once

#include <cstddef>

#include "parallel/reshard/copy_box.h"
#include "parallel/reshard/pack.h"
#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard {

/// In its sender's memory, and in its receiver's.
SourcePlace source_of(const Layout& from, const Layout& to, const Plan& plan, const Move& move,
                      const Memory& memory);
TargetPlace target_of(const Layout& to, const Move& move, const Memory& memory);

/// Where a message lies in one run, as it travels, so that nobody has to pack it: in its sender's
/// memory, and in its receiver's. Null: it does not.
const std::byte* run_of_source(const Layout& from, const Layout& to, const Plan& plan,
                               const Message& message, const Memory& memory);
std::byte* run_of_target(const Layout& from, const Layout& to, const Plan& plan,
                         const Message& message, const Memory& memory);

}  // namespace tutti::parallel::reshard
