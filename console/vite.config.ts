import react from '@vitejs/plugin-react'
import { defineConfig } from 'vitest/config'

const mock = process.env.CONSOLE_SERVER ?? 'http://127.0.0.1:8090'

export default defineConfig({
  base: './',
  plugins: [react()],
  server: { proxy: { '/api': mock, '/console': mock } },
  build: {
    outDir: process.env.CONSOLE_DIST ?? '../internal/console/dist',
    emptyOutDir: true,
    target: 'es2022',
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      // The directive "use client" is for servers that render; nothing here does.
      onwarn: (warning, warn) => {
        if (warning.code !== 'MODULE_LEVEL_DIRECTIVE') warn(warning)
      },
    },
  },
  test: { include: ['test/**/*.test.ts'], environment: 'node' },
})
