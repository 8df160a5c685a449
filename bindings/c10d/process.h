// The number of this process, without a system call: the backend asks in every call whether a
// fork() lies between its group and itself.
#pragma once

#include <sys/types.h>

namespace tutti::pytorch {

pid_t process_id();

}  // namespace tutti::pytorch
