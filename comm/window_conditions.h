// What calls of a window wait for.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/window.h"
#include "comm/window_impl.h"
#include "execute/host/condition.h"

namespace tutti {

/// The call's name, for messages to people.
std::string_view name_of(WindowCall::Kind kind);

/// The peer of `call` has given `target` signals, since the window began.
std::unique_ptr<Condition> signals_are_there(std::shared_ptr<Window::Impl> window,
                                             const WindowCall& call, std::uint64_t target);
/// The network has taken the put of `call`, which the FarWriter calls `number`.
std::unique_ptr<Condition> put_is_taken(std::shared_ptr<Window::Impl> window,
                                        const WindowCall& call, std::uint64_t number);

}  // namespace tutti
