// Numbers of 128 bits, which the language does not have everywhere under the same name.
#pragma once

namespace tutti::mpi {

__extension__ using Int128 = __int128;
#if defined(__x86_64__)
__extension__ using Float128 = __float128;
#else
using Float128 = long double;  // IEEE's binary128 on aarch64
#endif

}  // namespace tutti::mpi
