// A run on a thread of its own.
#pragma once

#include <functional>
#include <memory>

#include "parallel/reshard/reshard.h"

namespace tutti::parallel::reshard {

/// Starts `body` once the run before it, if any, is over.
std::shared_ptr<Transfer::State> start_transfer(std::shared_ptr<Transfer::State> before,
                                                std::function<void()> body);

}  // namespace tutti::parallel::reshard
