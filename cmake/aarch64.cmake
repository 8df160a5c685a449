# Toolchain: Debian's cross compiler for 64-bit ARM (g++-aarch64-linux-gnu), with the libraries that
# cmake/sysroot.sh has unpacked. Programs of it run under qemu-aarch64-static (qemu-user-static).
#
#     cmake/sysroot.sh arm64 build/sysroot-arm64
#     cmake -S . -B build-aarch64 -G Ninja --toolchain cmake/aarch64.cmake -DTUTTI_BUILD_TESTS=OFF
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

cmake_path(SET sysroot NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../build/sysroot-arm64)
set(TUTTI_SYSROOT ${sysroot} CACHE PATH "What cmake/sysroot.sh has unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TUTTI_SYSROOT)
set(CMAKE_SYSROOT ${TUTTI_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
find_program(TUTTI_QEMU qemu-aarch64-static)
if(TUTTI_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${TUTTI_QEMU} -L ${CMAKE_SYSROOT})
endif()
# The reductions keep vectors in arrays, so they take NEON and no vectors of unknown length (SVE). Highway's
# NEON has the AES instructions, which servers have; with them from the start, its functions are inlined.
set(CMAKE_CXX_FLAGS_INIT "-march=armv8-a+crypto -DHWY_COMPILE_ONLY_STATIC")
# A machine's nvcc makes no code for this one.
set(TUTTI_CUDA OFF CACHE STRING "")
set(TUTTI_TORCH OFF CACHE STRING "")
