// Tutti's errors as c10d's: torch.distributed.DistBackendError, with the same sentence. If Ctrl-C
// has ended a call, the exception is Python's.
#pragma once

#include <c10/util/Exception.h>
#include <tutti/tutti.h>

#include <exception>
#include <string>
#include <utility>

#include "python.h"
#include "tensors.h"

namespace tutti::pytorch {

/// In a child of fork(), which has none of the threads that carry out what is under way.
inline constexpr const char* kOfTheParent =
    "this process group is of the process of which this one is a child: after fork() only the "
    "parent can use it";

/// A time-out, and a rank that is lost, say so in PyTorch's words, by which programs know them.
inline c10::DistBackendError as_torch(const Error& error) {
  std::string text = with_labels_named(error.what());
  if (error.code() == ErrorCode::timed_out && text.find("imed out") == std::string::npos) {
    text = "Timed out: " + text;
  }
  if (error.code() == ErrorCode::peer_lost) text = "Connection closed by peer: " + text;
  return {{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text};
}

/// Runs `body`, and turns Tutti's exceptions into PyTorch's; `hears` of each first.
template <class Body, class Hears>
decltype(auto) translated(Body&& body, Hears&& hears) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    throw_if_interrupted();
    hears(error);
    throw as_torch(error);
  }
}

template <class Body>
decltype(auto) translated(Body&& body) {
  return translated(std::forward<Body>(body), [](const Error&) {});
}

}  // namespace tutti::pytorch
