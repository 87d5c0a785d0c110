//! Makes the types of `proto/mailbox/v1/mailbox.proto`, without a compiler to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "proto")]
    generated::make()?;
    Ok(())
}

#[cfg(feature = "proto")]
mod generated {
    use std::error::Error;
    use std::path::{Path, PathBuf};

    /// Where imports are looked for.
    const ROOT: &str = "../../proto";
    const FILE: &str = "mailbox/v1/mailbox.proto";
    /// Messages with payloads, receipt handles or capabilities; how they are shown is written by
    /// hand, in `src/proto/shown.rs`.
    const SECRET: [&str; 10] = [
        ".mailbox.v1.SendRequest",
        ".mailbox.v1.BatchMessage",
        ".mailbox.v1.Envelope",
        ".mailbox.v1.AckRequest",
        ".mailbox.v1.NackRequest",
        ".mailbox.v1.ExtendRequest",
        ".mailbox.v1.SettleItem",
        ".mailbox.v1.MintCapabilityResponse",
        ".mailbox.v1.RevokeCapabilityRequest",
        ".mailbox.v1.RotateKeyResponse",
    ];

    pub(crate) fn make() -> Result<(), Box<dyn Error>> {
        println!("cargo:rerun-if-changed={ROOT}");
        let out = PathBuf::from(std::env::var("OUT_DIR")?);
        let mut compiler = protox::Compiler::new([Path::new(ROOT)])?;
        // Comments become documentation.
        compiler.include_imports(true).include_source_info(true).open_file(FILE)?;
        std::fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
        let has_service = cfg!(feature = "grpc");
        tonic_prost_build::configure()
            .out_dir(&out)
            .build_client(has_service)
            .build_server(has_service)
            .build_transport(false)
            .codec_path("crate::proto::Codec")
            // Slices of the buffer that was read, instead of copies.
            .bytes(".")
            // Sorted, as attributes are everywhere else.
            .btree_map(".")
            // Hardly ever there, and larger than what is there instead.
            .boxed(".mailbox.v1.BatchResult.result.error")
            .boxed(".mailbox.v1.SettleResult.result.error")
            .skip_debug(SECRET)
            .compile_fds(compiler.file_descriptor_set())?;
        Ok(())
    }
}
