// Which of UCX's transports carry the messages of an endpoint, for people.
#pragma once

#include <string>

#include "transport/ucx/library.h"

namespace tutti {

/// "tcp"; "sysv, cma". Empty: UCX's text is another one.
std::string ucx_carriers(const UcxLibrary& ucx, ucp_ep_h ep);

}  // namespace tutti
