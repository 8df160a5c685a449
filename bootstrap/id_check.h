// Whether a unique id that was found somewhere is still good: its rendezvous has to listen where it
// says, and to prove that it knows the id's secret. Another server may have the port by now.
#pragma once

#include <string>

#include "bootstrap/unique_id.h"
#include "core/wait.h"

namespace tutti {

/// Why what listens at the address of `id` is not its rendezvous; "": it is. Throws
/// Error(invalid_argument) for bytes that are no id.
std::string why_not_there(const UniqueId& id, Deadline deadline);

}  // namespace tutti
