// Tutti's errors as c10d's: torch.distributed.DistBackendError, with the same sentence. If Ctrl-C
// has ended a call, the exception is Python's.
#pragma once

#include <c10/util/Exception.h>
#include <tutti/tutti.h>

#include <exception>
#include <utility>

#include "python.h"
#include "tensors.h"

namespace tutti::pytorch {

inline c10::DistBackendError as_torch(const Error& error) {
  return {{__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
          with_labels_named(error.what())};
}

/// Runs `body`, and turns Tutti's exceptions into PyTorch's.
template <class Body>
decltype(auto) translated(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    throw_if_interrupted();
    throw as_torch(error);
  }
}

}  // namespace tutti::pytorch
