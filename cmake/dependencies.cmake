# What the library needs; docs/dependencies.md says why. TUTTI_LINK is what a static libtutti.a
# makes its users link.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(hwy 1.0 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc>=2.9)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium>=1.0.18)

set(TUTTI_LINK spdlog::spdlog fmt::fmt hwy::hwy PkgConfig::HWLOC PkgConfig::SODIUM Threads::Threads)
